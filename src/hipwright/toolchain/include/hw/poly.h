// Polynomials of hw/math.h, written by tests/toolchain/fit_math.py: change that, not this.
#pragma once
#include "attr.h"

HW_FN double hw_p_exp(double x) {
    double p = 2.0914898727175518e-9;
    p = __builtin_fma(p, x, 2.5105513541847085e-8);
    p = __builtin_fma(p, x, 2.7557273132896041e-7);
    p = __builtin_fma(p, x, 2.7557254685728803e-6);
    p = __builtin_fma(p, x, 2.4801587325951109e-5);
    p = __builtin_fma(p, x, 1.984126987538548e-4);
    p = __builtin_fma(p, x, 1.3888888888883633e-3);
    p = __builtin_fma(p, x, 8.3333333333259731e-3);
    p = __builtin_fma(p, x, 4.166666666666667e-2);
    p = __builtin_fma(p, x, 1.6666666666666671e-1);
    p = __builtin_fma(p, x, 5.0e-1);
    return p;
}

HW_FN float hw_p_expf(float x) {
    float p = 1.39263919e-3f;
    p = __builtin_fmaf(p, x, 8.36334581e-3f);
    p = __builtin_fmaf(p, x, 4.16665534e-2f);
    p = __builtin_fmaf(p, x, 1.6666576e-1f);
    p = __builtin_fmaf(p, x, 5.0e-1f);
    return p;
}

HW_FN double hw_p_log(double x) {
    double p = 1.4623956608211879e-1;
    p = __builtin_fma(p, x, 1.5331112587960168e-1);
    p = __builtin_fma(p, x, 1.8182907497671218e-1);
    p = __builtin_fma(p, x, 2.2222210881932927e-1);
    p = __builtin_fma(p, x, 2.8571428627528796e-1);
    p = __builtin_fma(p, x, 3.999999999989607e-1);
    p = __builtin_fma(p, x, 6.6666666666666698e-1);
    return p;
}

HW_FN float hw_p_logf(float x) {
    float p = 2.3336811e-1f;
    p = __builtin_fmaf(p, x, 2.8550587e-1f);
    p = __builtin_fmaf(p, x, 4.00001239e-1f);
    p = __builtin_fmaf(p, x, 6.66666666e-1f);
    return p;
}

HW_FN double hw_p_log_dd(double x) {
    double p = 1.1730107861893029e-1;
    p = __builtin_fma(p, x, 1.1705571895677209e-1);
    p = __builtin_fma(p, x, 1.3334829573906535e-1);
    p = __builtin_fma(p, x, 1.5384594503809889e-1);
    p = __builtin_fma(p, x, 1.8181818339697632e-1);
    p = __builtin_fma(p, x, 2.2222222221636844e-1);
    p = __builtin_fma(p, x, 2.8571428571429397e-1);
    p = __builtin_fma(p, x, 4.0e-1);
    return p;
}

HW_FN double hw_p_sin(double x) {
    double p = -7.5863895547052155e-13;
    p = __builtin_fma(p, x, 1.6058526388142103e-10);
    p = __builtin_fma(p, x, -2.5052106199361818e-8);
    p = __builtin_fma(p, x, 2.7557319219243675e-6);
    p = __builtin_fma(p, x, -1.9841269841264942e-4);
    p = __builtin_fma(p, x, 8.3333333333333314e-3);
    p = __builtin_fma(p, x, -1.6666666666666667e-1);
    return p;
}

HW_FN float hw_p_sinf(float x) {
    float p = 2.72483648e-6f;
    p = __builtin_fmaf(p, x, -1.98400747e-4f);
    p = __builtin_fmaf(p, x, 8.33333185e-3f);
    p = __builtin_fmaf(p, x, -1.66666667e-1f);
    return p;
}

HW_FN double hw_p_cos(double x) {
    double p = 4.745700902269626e-14;
    p = __builtin_fma(p, x, -1.1470457979362018e-11);
    p = __builtin_fma(p, x, 2.0876755772685473e-9);
    p = __builtin_fma(p, x, -2.7557319221349734e-7);
    p = __builtin_fma(p, x, 2.4801587301584578e-5);
    p = __builtin_fma(p, x, -1.3888888888888888e-3);
    p = __builtin_fma(p, x, 4.1666666666666667e-2);
    return p;
}

HW_FN float hw_p_cosf(float x) {
    float p = -2.72996563e-7f;
    p = __builtin_fmaf(p, x, 2.48005903e-5f);
    p = __builtin_fmaf(p, x, -1.38888877e-3f);
    p = __builtin_fmaf(p, x, 4.16666667e-2f);
    return p;
}

HW_FN double hw_p_atan(double x) {
    double p = -1.1832505417555693e-5;
    p = __builtin_fma(p, x, 1.368724853148122e-4);
    p = __builtin_fma(p, x, -7.5184725269738215e-4);
    p = __builtin_fma(p, x, 2.622977891906089e-3);
    p = __builtin_fma(p, x, -6.5756833441516986e-3);
    p = __builtin_fma(p, x, 1.2756172907694297e-2);
    p = __builtin_fma(p, x, -2.0238706986393516e-2);
    p = __builtin_fma(p, x, 2.7567942297344677e-2);
    p = __builtin_fma(p, x, -3.3750132001619734e-2);
    p = __builtin_fma(p, x, 3.8726402140426325e-2);
    p = __builtin_fma(p, x, -4.3081196553304713e-2);
    p = __builtin_fma(p, x, 4.7520867735766561e-2);
    p = __builtin_fma(p, x, -5.2612657357094544e-2);
    p = __builtin_fma(p, x, 5.8820749563712946e-2);
    p = __builtin_fma(p, x, -6.6666364357776927e-2);
    p = __builtin_fma(p, x, 7.6923053546786548e-2);
    p = __builtin_fma(p, x, -9.0909089695574031e-2);
    p = __builtin_fma(p, x, 1.1111111107234799e-1);
    p = __builtin_fma(p, x, -1.4285714285648404e-1);
    p = __builtin_fma(p, x, 1.9999999999999553e-1);
    p = __builtin_fma(p, x, -3.3333333333333333e-1);
    return p;
}

HW_FN float hw_p_atanf(float x) {
    float p = 1.48869194e-3f;
    p = __builtin_fmaf(p, x, -9.14462976e-3f);
    p = __builtin_fmaf(p, x, 2.63050011e-2f);
    p = __builtin_fmaf(p, x, -4.8960514e-2f);
    p = __builtin_fmaf(p, x, 7.03191425e-2f);
    p = __builtin_fmaf(p, x, -8.93182678e-2f);
    p = __builtin_fmaf(p, x, 1.10882616e-1f);
    p = __builtin_fmaf(p, x, -1.42840038e-1f);
    p = __builtin_fmaf(p, x, 1.99999493e-1f);
    p = __builtin_fmaf(p, x, -3.33333331e-1f);
    return p;
}

HW_FN double hw_p_asin(double x) {
    double p = 2.8778442612593039e-2;
    p = __builtin_fma(p, x, -1.4881409392818063e-2);
    p = __builtin_fma(p, x, 1.7419357964884855e-2);
    p = __builtin_fma(p, x, 5.4508781877205507e-3);
    p = __builtin_fma(p, x, 1.0324318288744112e-2);
    p = __builtin_fma(p, x, 1.1478952690257387e-2);
    p = __builtin_fma(p, x, 1.3971235301124539e-2);
    p = __builtin_fma(p, x, 1.7352391265909228e-2);
    p = __builtin_fma(p, x, 2.2372173002005597e-2);
    p = __builtin_fma(p, x, 3.0381944137085214e-2);
    p = __builtin_fma(p, x, 4.4642857146373381e-2);
    p = __builtin_fma(p, x, 7.4999999999984243e-2);
    p = __builtin_fma(p, x, 1.6666666666666668e-1);
    return p;
}

HW_FN float hw_p_asinf(float x) {
    float p = 3.37007263e-2f;
    p = __builtin_fmaf(p, x, 1.71437168e-2f);
    p = __builtin_fmaf(p, x, 3.11017278e-2f);
    p = __builtin_fmaf(p, x, 4.45993192e-2f);
    p = __builtin_fmaf(p, x, 7.50009476e-2f);
    p = __builtin_fmaf(p, x, 1.66666663e-1f);
    return p;
}

HW_FN float hw_p_tanhf(float x) {
    float p = 2.26950168e-3f;
    p = __builtin_fmaf(p, x, -8.32318706e-3f);
    p = __builtin_fmaf(p, x, 2.17625029e-2f);
    p = __builtin_fmaf(p, x, -5.39584616e-2f);
    p = __builtin_fmaf(p, x, 1.33333001e-1f);
    p = __builtin_fmaf(p, x, -3.33333331e-1f);
    return p;
}

HW_FN double hw_p_erf(double x) {
    double p = -4.2309458242953378e-12;
    p = __builtin_fma(p, x, 8.7090451290531067e-11);
    p = __builtin_fma(p, x, -1.216456005728345e-9);
    p = __builtin_fma(p, x, 1.4792401209404813e-8);
    p = __builtin_fma(p, x, -1.6364642158167615e-7);
    p = __builtin_fma(p, x, 1.6462045441468419e-6);
    p = __builtin_fma(p, x, -1.4925647567519332e-5);
    p = __builtin_fma(p, x, 1.2055332902888735e-4);
    p = __builtin_fma(p, x, -8.5483270219348296e-4);
    p = __builtin_fma(p, x, 5.2239776254232983e-3);
    p = __builtin_fma(p, x, -2.6866170645129841e-2);
    p = __builtin_fma(p, x, 1.128379167095512e-1);
    p = __builtin_fma(p, x, -3.7612638903183752e-1);
    p = __builtin_fma(p, x, 1.2837916709551257e-1);
    return p;
}

HW_FN float hw_p_erff(float x) {
    float p = -9.66704457e-6f;
    p = __builtin_fmaf(p, x, 1.1265959e-4f);
    p = __builtin_fmaf(p, x, -8.48408041e-4f);
    p = __builtin_fmaf(p, x, 5.22103181e-3f);
    p = __builtin_fmaf(p, x, -2.68654307e-2f);
    p = __builtin_fmaf(p, x, 1.12837825e-1f);
    p = __builtin_fmaf(p, x, -3.76126385e-1f);
    p = __builtin_fmaf(p, x, 1.28379167e-1f);
    return p;
}

HW_FN float hw_p_erf_tailf(float x) {
    float p = 1.64267897e-6f;
    p = __builtin_fmaf(p, x, -4.61647852e-5f);
    p = __builtin_fmaf(p, x, 5.97677275e-4f);
    p = __builtin_fmaf(p, x, -4.76350966e-3f);
    p = __builtin_fmaf(p, x, 2.64316433e-2f);
    p = __builtin_fmaf(p, x, -1.10097243e-1f);
    p = __builtin_fmaf(p, x, -6.3180955e-1f);
    p = __builtin_fmaf(p, x, -1.13024188f);
    p = __builtin_fmaf(p, x, 3.21866258e-4f);
    return p;
}

HW_FN double hw_p_erfcx(double x) {
    double p = 3.4201566844285214e-9;
    p = __builtin_fma(p, x, -9.7395626007071997e-9);
    p = __builtin_fma(p, x, -2.3084009199818713e-8);
    p = __builtin_fma(p, x, 1.0355618608989423e-7);
    p = __builtin_fma(p, x, 8.1911615924532406e-8);
    p = __builtin_fma(p, x, -8.19932688130041e-7);
    p = __builtin_fma(p, x, 2.8803677875385663e-7);
    p = __builtin_fma(p, x, 5.7068193565118905e-6);
    p = __builtin_fma(p, x, -1.1219207664452384e-5);
    p = __builtin_fma(p, x, -2.4398204232544517e-5);
    p = __builtin_fma(p, x, 1.506208000300976e-4);
    p = __builtin_fma(p, x, -1.9925692522816322e-4);
    p = __builtin_fma(p, x, -7.5777311690674039e-4);
    p = __builtin_fma(p, x, 5.0319700119501871e-3);
    p = __builtin_fma(p, x, -1.6197734078294927e-2);
    p = __builtin_fma(p, x, 3.7167515534411736e-2);
    p = __builtin_fma(p, x, -6.6330365810841871e-2);
    p = __builtin_fma(p, x, 9.3732834998504552e-2);
    p = __builtin_fma(p, x, -1.0103906603634865e-1);
    p = __builtin_fma(p, x, 6.8097054254689082e-2);
    p = __builtin_fma(p, x, 1.5379652102620226e-2);
    p = __builtin_fma(p, x, -1.3962111684056249e-1);
    p = __builtin_fma(p, x, 1.2329951186255525);
    return p;
}

HW_FN double hw_p_lgamma(double x) {
    double p = -7.7606601525134468e-6;
    p = __builtin_fma(p, x, 1.2140008083973407e-5);
    p = __builtin_fma(p, x, -8.3550758697952728e-6);
    p = __builtin_fma(p, x, 1.3186019073996834e-5);
    p = __builtin_fma(p, x, -2.7201673025504752e-5);
    p = __builtin_fma(p, x, 4.3027681497650298e-5);
    p = __builtin_fma(p, x, -6.6141360223464143e-5);
    p = __builtin_fma(p, x, 1.0535512483785592e-4);
    p = __builtin_fma(p, x, -1.6891782155248982e-4);
    p = __builtin_fma(p, x, 2.7131373861446928e-4);
    p = __builtin_fma(p, x, -4.3799307479613916e-4);
    p = __builtin_fma(p, x, 7.1151906751529593e-4);
    p = __builtin_fma(p, x, -1.1644145847310124e-3);
    p = __builtin_fma(p, x, 1.922916312790516e-3);
    p = __builtin_fma(p, x, -3.2120740737152812e-3);
    p = __builtin_fma(p, x, 5.4464578391260646e-3);
    p = __builtin_fma(p, x, -9.4256224485257978e-3);
    p = __builtin_fma(p, x, 1.679709863127416e-2);
    p = __builtin_fma(p, x, -3.1308487501010648e-2);
    p = __builtin_fma(p, x, 6.2911401074564392e-2);
    p = __builtin_fma(p, x, -1.4595989591430608e-1);
    p = __builtin_fma(p, x, 4.8312895054098089e-1);
    return p;
}

HW_FN double hw_p_rgamma(double x) {
    double p = 1.6830710938973938e-8;
    p = __builtin_fma(p, x, -9.002261834603834e-8);
    p = __builtin_fma(p, x, 5.8054073254955596e-8);
    p = __builtin_fma(p, x, 2.1565577829270526e-6);
    p = __builtin_fma(p, x, -1.3896829354060865e-5);
    p = __builtin_fma(p, x, 2.5355130539175537e-5);
    p = __builtin_fma(p, x, 1.5235762354157664e-4);
    p = __builtin_fma(p, x, -1.1107302459181191e-3);
    p = __builtin_fma(p, x, 2.1207314423962418e-3);
    p = __builtin_fma(p, x, 6.6128978262735152e-3);
    p = __builtin_fma(p, x, -4.2155169368530076e-2);
    p = __builtin_fma(p, x, 5.0966860247723255e-2);
    p = __builtin_fma(p, x, 1.751020260439345e-1);
    p = __builtin_fma(p, x, -5.2665443552554468e-1);
    p = __builtin_fma(p, x, -4.1174526445283101e-2);
    p = __builtin_fma(p, x, 1.1283791670955126);
    return p;
}

HW_FN float hw_p_erfinvf(float x) {
    float p = 4.67193251e-10f;
    p = __builtin_fmaf(p, x, -8.7390107e-9f);
    p = __builtin_fmaf(p, x, 1.59843061e-8f);
    p = __builtin_fmaf(p, x, 4.65417411e-7f);
    p = __builtin_fmaf(p, x, -3.42341427e-6f);
    p = __builtin_fmaf(p, x, -4.95969179e-6f);
    p = __builtin_fmaf(p, x, 2.18257724e-4f);
    p = __builtin_fmaf(p, x, -1.2527485e-3f);
    p = __builtin_fmaf(p, x, -4.17732004e-3f);
    p = __builtin_fmaf(p, x, 2.46640289e-1f);
    p = __builtin_fmaf(p, x, 1.50140935f);
    return p;
}

HW_FN float hw_p_erfinv_tailf(float x) {
    float p = 1.11538581e-4f;
    p = __builtin_fmaf(p, x, -3.05525051e-4f);
    p = __builtin_fmaf(p, x, -5.04588529e-5f);
    p = __builtin_fmaf(p, x, 1.47970395e-3f);
    p = __builtin_fmaf(p, x, -3.60090033e-3f);
    p = __builtin_fmaf(p, x, 5.68921629e-3f);
    p = __builtin_fmaf(p, x, -7.63648964e-3f);
    p = __builtin_fmaf(p, x, 9.44499211e-3f);
    p = __builtin_fmaf(p, x, 1.00167491f);
    p = __builtin_fmaf(p, x, 2.83297681f);
    return p;
}
